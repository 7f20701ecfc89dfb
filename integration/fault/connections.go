package fault

import (
	"net/http"
	"strconv"

	"github.com/inorder-im/inorder/integration/proxy"
)

// Connections is a proxy in front of the @connections API. Its target may be set
// later than its URL is needed: the gateway is started with that URL.
type Connections struct {
	*proxy.Proxy
	plan *Plan
}

// NewConnections starts a proxy. It answers 502 until SetTarget.
func NewConnections(plan *Plan) (*Connections, error) {
	p, err := proxy.New()
	if err != nil {
		return nil, err
	}
	c := &Connections{Proxy: p, plan: plan}
	p.Serve(c.handle)
	return c, nil
}

func (c *Connections) handle(req proxy.Request) proxy.Answer {
	if s, ok := c.plan.strikes(PushCut); ok {
		if s.coin() {
			c.Forward(req)
		}
		proxy.HangUp()
	}
	if _, ok := c.plan.strikes(PushLimit); ok {
		return refused(http.StatusTooManyRequests, "LimitExceededException")
	}
	if s, ok := c.plan.strikes(PushError); ok {
		status := oneOf(s, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
		return refused(status, "InternalServerException")
	}
	if req.Method != http.MethodPost {
		return c.Forward(req)
	}
	return c.post(req)
}

func (c *Connections) post(req proxy.Request) proxy.Answer {
	if _, ok := c.plan.strikes(PushDrop); ok {
		return sent()
	}
	if s, ok := c.plan.strikes(PushLate); ok {
		c.Go(func() { // counted from within a request, which is counted too
			if c.Sleep(s.duration()) {
				c.Forward(req)
			}
		})
		return sent()
	}
	if _, ok := c.plan.strikes(PushGone); ok {
		c.Forward(proxy.Request{Method: http.MethodDelete, Path: req.Path, Header: withoutBody(req.Header)})
	}
	if _, ok := c.plan.strikes(PushRepeat); ok {
		c.Forward(req)
	}
	return c.Forward(req)
}

func withoutBody(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Content-Type")
	h.Set("Content-Length", strconv.Itoa(0))
	return h
}

func sent() proxy.Answer { return proxy.Answer{Status: http.StatusOK} }

// refused is an error of the @connections API, which the SDKs map by this header.
func refused(status int, errorType string) proxy.Answer {
	return proxy.Answer{
		Status: status,
		Header: http.Header{"X-Amzn-Errortype": {errorType}, "Content-Type": {"application/json"}},
		Body:   mustMarshal(map[string]string{"message": "a fault of the plan"}),
	}
}
