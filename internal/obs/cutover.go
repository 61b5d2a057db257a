package obs

import "time"

// CutoverMetrics are those of one virtual cluster's moves.
type CutoverMetrics struct {
	virtualCluster string
	parent         *cutoverMetrics
}

// Cutover returns the cutover metrics of a virtual cluster.
func (m *Metrics) Cutover(virtualCluster string) *CutoverMetrics {
	if m == nil {
		return nil
	}
	return &CutoverMetrics{virtualCluster: virtualCluster, parent: &m.cutover}
}

// SetPhase marks now as the phase, and clears the mark of before; before may be empty.
func (c *CutoverMetrics) SetPhase(before, now string) {
	if c == nil {
		return
	}
	if before != "" {
		c.parent.phase.WithLabelValues(c.virtualCluster, before).Set(0)
	}
	c.parent.phase.WithLabelValues(c.virtualCluster, now).Set(1)
}

// SetRoute tells the generation and the roles now in force.
func (c *CutoverMetrics) SetRoute(generation int64, active, standby string) {
	if c == nil {
		return
	}
	c.parent.generation.WithLabelValues(c.virtualCluster).Set(float64(generation))
	c.parent.active.WithLabelValues(c.virtualCluster, standby).Set(0)
	c.parent.active.WithLabelValues(c.virtualCluster, active).Set(1)
}

// Ended counts a cutover. mode is planned or forced, result the phase it ended in: Done or Aborted.
func (c *CutoverMetrics) Ended(mode, result string, pause time.Duration) {
	if c == nil {
		return
	}
	c.parent.cutovers.WithLabelValues(c.virtualCluster, mode, result).Inc()
	c.parent.pause.WithLabelValues(c.virtualCluster).Set(pause.Seconds())
}
