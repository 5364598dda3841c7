// Runs Apache Kafka's command-line classes one after the other in one virtual
// machine, since starting one costs more than most of them do.
//
// A line of standard input is a class and its arguments, each in base64; the
// answer is a line with the exit code, standard output and standard error. Nobody
// else writes to standard output: what a thread that outlives its tool still says
// there goes to standard error.
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.utils.internals.Exit;

public class Tools {
    static class Ended extends RuntimeException {
        Ended() {
            super("ended", null, false, false);
        }
    }

    static Integer code;

    static void end(int status) {
        if (code == null) {
            code = status;
        }
        throw new Ended();
    }

    static String run(String[] words) throws Exception {
        String[] plain = new String[words.length];
        for (int i = 0; i < words.length; i++) {
            plain[i] = new String(Base64.getDecoder().decode(words[i].substring(1)), StandardCharsets.UTF_8);
        }
        String[] args = new String[plain.length - 1];
        System.arraycopy(plain, 1, args, 0, args.length);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream realErr = System.err;
        code = null;
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        try {
            Class.forName(plain[0]).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Ended)) {
                e.getCause().printStackTrace();
                code = code == null ? 1 : code;
            }
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(realErr);
            System.setErr(realErr);
        }
        Base64.Encoder base64 = Base64.getEncoder();
        return (code == null ? 0 : code) + " ." + base64.encodeToString(out.toByteArray()) + " ." + base64.encodeToString(err.toByteArray());
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(run(line.split(" ")));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
