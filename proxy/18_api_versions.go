package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions: v0–v4
//
// Always answered here, without a look at the request: proxy ∩ all clusters of the virtual cluster, from the start, so that
// nothing changes at a move.
// No features:         what finalized features would switch on (transactions v2, new group types) is not offered.
// Version too high:    UNSUPPORTED_VERSION in the layout of v0, with our ranges; clients try again with one that we have.

func (p *Proxy) apiVersions(route *Route, version int16) *kmsg.ApiVersionsResponse {
	r := kmsg.NewPtrApiVersionsResponse()
	r.Version = version
	if _, top, _ := p.offered(route.Identity, int16(kmsg.ApiVersions)); version > top || version < 0 {
		r.Version, r.ErrorCode = 0, kerr.UnsupportedVersion.Code
	}
	for i := range p.apis {
		low, high, ok := p.offered(route.Identity, p.apis[i].key)
		if ok {
			r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: p.apis[i].key, MinVersion: low, MaxVersion: high})
		}
	}
	return r
}
