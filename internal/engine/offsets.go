package engine

import (
	"context"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/replicator"
)

func finalOffsets(context.Context, *replicator.Flow, *proxy.Proxy) (int, error) { return 0, nil }
func groupLines(*replicator.Flow) []admin.GroupLine                             { return []admin.GroupLine{} }
