package fault

import (
	"net/http"
	"strconv"
)

// Connections is a proxy in front of the @connections API. Its target may be set
// later than its URL is needed: the gateway is started with that URL.
type Connections struct{ *proxy }

// NewConnections starts a proxy. It answers 502 until SetTarget.
func NewConnections(plan *Plan) (*Connections, error) {
	p, listener, err := newProxy(plan)
	if err != nil {
		return nil, err
	}
	c := &Connections{p}
	p.serve(listener, c.handle)
	return c, nil
}

func (c *Connections) handle(req request) answer {
	if s, ok := c.plan.strikes(PushCut); ok {
		if s.coin() {
			c.forward(req)
		}
		hangUp()
	}
	if _, ok := c.plan.strikes(PushLimit); ok {
		return refused(http.StatusTooManyRequests, "LimitExceededException")
	}
	if s, ok := c.plan.strikes(PushError); ok {
		status := oneOf(s, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
		return refused(status, "InternalServerException")
	}
	if req.method != http.MethodPost {
		return c.forward(req)
	}
	return c.post(req)
}

func (c *Connections) post(req request) answer {
	if _, ok := c.plan.strikes(PushDrop); ok {
		return sent()
	}
	if s, ok := c.plan.strikes(PushLate); ok {
		c.work.Go(func() { // counted from within a request, which is counted too
			if c.sleep(s.duration()) {
				c.forward(req)
			}
		})
		return sent()
	}
	if _, ok := c.plan.strikes(PushGone); ok {
		c.forward(request{method: http.MethodDelete, path: req.path, header: withoutBody(req.header)})
	}
	if _, ok := c.plan.strikes(PushRepeat); ok {
		c.forward(req)
	}
	return c.forward(req)
}

func withoutBody(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Content-Type")
	h.Set("Content-Length", strconv.Itoa(0))
	return h
}

func sent() answer { return answer{status: http.StatusOK} }

// refused is an error of the @connections API, which the SDKs map by this header.
func refused(status int, errorType string) answer {
	return answer{
		status: status,
		header: http.Header{"X-Amzn-Errortype": {errorType}, "Content-Type": {"application/json"}},
		body:   mustMarshal(map[string]string{"message": "a fault of the plan"}),
	}
}
