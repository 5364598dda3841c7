package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Endpoint types of DescribeCluster.
const (
	brokerEndpoints     int8 = 1
	controllerEndpoints int8 = 2
)

// describeCluster lists the brokers.
//
// Versions: 1 asks for brokers or controllers, 2 for fenced brokers too.
func (h *Handler) describeCluster(c *Conn, req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType, resp.ControllerID = brokerEndpoints, -1
	resp.ClusterAuthorizedOperations = notAsked
	switch req.EndpointType {
	case brokerEndpoints:
	case controllerEndpoints:
		resp.ErrorCode = codeMismatchedEndpointType
		resp.ErrorMessage = kmsg.StringPtr("The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		return resp
	default:
		resp.ErrorCode = codeUnsupportedEndpointType
		resp.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Unsupported endpoint type %d", req.EndpointType))
		return resp
	}
	resp.ClusterID, resp.ControllerID = img.ClusterID(), controllerFor(img, c.Listener)
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for _, b := range img.Brokers() {
		e, ok := endpointOn(b, c.Listener)
		if !ok || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		out := kmsg.NewDescribeClusterResponseBroker()
		out.NodeID, out.Host, out.Port, out.Rack, out.IsFenced = e.id, e.host, e.port, e.rack, b.Fenced
		resp.Brokers = append(resp.Brokers, out)
	}
	return resp
}
