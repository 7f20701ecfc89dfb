package route

import "strings"

// HeaderValues returns the values of a header, whatever the case of its name. API
// Gateway passes on headers as the client spelled them; a header sent in several
// lines is whole only in the multi-value map.
func HeaderValues(headers map[string]string, multiValueHeaders map[string][]string, name string) []string {
	var values []string
	for key, lines := range multiValueHeaders {
		if strings.EqualFold(key, name) {
			values = append(values, lines...)
		}
	}
	if values != nil {
		return values
	}
	for key, line := range headers {
		if strings.EqualFold(key, name) {
			values = append(values, line)
		}
	}
	return values
}

// Subprotocols returns the WebSocket subprotocols that a handshake offers.
func Subprotocols(headers map[string]string, multiValueHeaders map[string][]string) []string {
	var offered []string
	for _, line := range HeaderValues(headers, multiValueHeaders, "Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				offered = append(offered, name)
			}
		}
	}
	return offered
}
