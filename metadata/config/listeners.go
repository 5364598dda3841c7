package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var listenerName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// parseEndpoint reads NAME://host:port.
func parseEndpoint(s string) (Endpoint, error) {
	name, at, ok := strings.Cut(s, "://")
	if !ok || !listenerName.MatchString(name) {
		return Endpoint{}, fmt.Errorf("%q is not of the form NAME://host:port", s)
	}
	host, port, err := splitHostPort(at)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q is not of the form NAME://host:port: %w", s, err)
	}
	return Endpoint{Name: strings.ToUpper(name), Host: host, Port: port}, nil
}

func splitHostPort(s string) (host string, port int32, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", p)
	}
	return host, int32(n), nil
}

func endpoints(key string, list []string) ([]Endpoint, error) {
	var out []Endpoint
	for _, s := range list {
		e, err := parseEndpoint(s)
		if err != nil {
			return nil, keyErr(key, "%s: %v", key, err)
		}
		for _, other := range out {
			if other.Name == e.Name {
				return nil, keyErr(key, "%s: each listener must have a name of its own, %s is used twice", key, e.Name)
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// everyAddress tells whether a host stands for every address of the machine.
func everyAddress(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func listeners(b *Broker, v values) error {
	ls, err := endpoints("listeners", v.list("listeners"))
	if err != nil {
		return err
	}
	b.Listeners = ls
	for i, l := range ls {
		for _, other := range ls[:i] {
			if l.Port != 0 && l.Port == other.Port && (l.Host == other.Host || everyAddress(l.Host) || everyAddress(other.Host)) {
				return keyErr("listeners", "listeners: %s and %s both want port %d", other.Name, l.Name, l.Port)
			}
		}
	}
	if err := protocols(b, v); err != nil {
		return err
	}
	for _, name := range v.list("controller.listener.names") {
		b.ControllerListeners = append(b.ControllerListeners, strings.ToUpper(name))
	}
	if err := advertised(b, v); err != nil {
		return err
	}
	if err := interBroker(b, v); err != nil {
		return err
	}
	b.AdminListeners = v.list("admin.listeners")
	for _, a := range b.AdminListeners {
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "http" || u.Host == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
			return keyErr("admin.listeners", "admin.listeners: %q is not of the form http://host:port", a)
		}
	}
	return nil
}

func protocols(b *Broker, v values) error {
	b.SecurityProtocols = map[string]string{}
	for _, pair := range v.list("listener.security.protocol.map") {
		name, protocol, ok := strings.Cut(pair, ":")
		name, protocol = strings.ToUpper(strings.TrimSpace(name)), strings.ToUpper(strings.TrimSpace(protocol))
		if !ok || !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, protocol) {
			return keyErr("listener.security.protocol.map", "listener.security.protocol.map: %q is not of the form NAME:PROTOCOL", pair)
		}
		b.SecurityProtocols[name] = protocol
	}
	for _, l := range b.Listeners {
		switch p, ok := b.SecurityProtocols[l.Name]; {
		case !ok && l.Name == "CONTROLLER":
			b.SecurityProtocols[l.Name] = "PLAINTEXT"
		case !ok:
			return keyErr("listener.security.protocol.map",
				"no security protocol is defined for listener %s: add %s:PLAINTEXT to listener.security.protocol.map", l.Name, l.Name)
		case p != "PLAINTEXT":
			return keyErr("listeners", "listener %s wants %s, which is not implemented yet: only PLAINTEXT is", l.Name, p)
		}
	}
	return nil
}

func advertised(b *Broker, v values) error {
	isController := func(e Endpoint) bool { return slices.Contains(b.ControllerListeners, e.Name) }
	clients := slices.DeleteFunc(slices.Clone(b.Listeners), isController)
	if len(clients) == 0 && slices.Contains(b.Roles, "broker") {
		return keyErr("listeners", "listeners holds only controller listeners: a broker needs one for clients")
	}
	set, err := endpoints("advertised.listeners", v.list("advertised.listeners"))
	if err != nil {
		return err
	}
	for _, e := range set {
		switch {
		case everyAddress(e.Host):
			return keyErr("advertised.listeners", "advertised.listeners cannot use %q, which is no address to connect to; name a host", e.Host)
		case !slices.ContainsFunc(b.Listeners, func(l Endpoint) bool { return l.Name == e.Name }):
			return keyErr("advertised.listeners", "advertised.listeners: there is no listener %s in listeners", e.Name)
		case isController(e):
			return keyErr("advertised.listeners", "advertised.listeners: %s is a controller listener and not for clients", e.Name)
		}
	}
	for _, l := range clients {
		if slices.ContainsFunc(set, func(e Endpoint) bool { return e.Name == l.Name }) {
			continue
		}
		if everyAddress(l.Host) {
			return keyErr("advertised.listeners",
				"listener %s binds every address, so clients must be told which to use: add the line advertised.listeners=%s://HOST:%d",
				l.Name, l.Name, l.Port)
		}
		set = append(set, l)
	}
	b.AdvertisedListeners = set
	return nil
}

func interBroker(b *Broker, v values) error {
	b.InterBrokerListener = strings.ToUpper(v.text("inter.broker.listener.name"))
	if b.InterBrokerListener == "" {
		if len(b.AdvertisedListeners) > 0 {
			b.InterBrokerListener = b.AdvertisedListeners[0].Name
		}
		return nil
	}
	if !slices.ContainsFunc(b.AdvertisedListeners, func(e Endpoint) bool { return e.Name == b.InterBrokerListener }) {
		return keyErr("inter.broker.listener.name", "inter.broker.listener.name=%s is not in listeners", b.InterBrokerListener)
	}
	return nil
}
