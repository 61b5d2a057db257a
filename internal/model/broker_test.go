package model

// verdict is a broker's answer to a produce request.
type verdict uint8

const (
	appended verdict = iota
	duplicate
	outOfOrder // 45
	fencedOff  // 47
)

// producer is what a leader knows of the slot's producer id.
type producer struct {
	known bool
	epoch uint8
	next  uint8 // the sequence after the last one under epoch
	from  int   // index of the first batch under epoch
}

// producer works the state out of the log, as a broker does when it loads one.
func (l *log) producer() producer {
	var p producer
	for i := int(l.forgot); i < int(l.n); i++ {
		b := l.batches[i]
		if !p.known || b.epoch != p.epoch {
			p = producer{known: true, epoch: b.epoch, from: i}
		}
		if b.kind != marker {
			p.next = b.seq + b.width()
		}
	}
	return p
}

// offer is what a leader does with a batch; base is where it stands, if it is in the log then.
func (l *log) offer(b batch) (v verdict, base uint8) {
	p := l.producer()
	switch {
	case p.known && b.epoch < p.epoch:
		return fencedOff, 0
	case b.kind == marker || !p.known:
	case b.epoch > p.epoch:
		if b.seq != 0 {
			return outOfOrder, 0
		}
	default:
		if base, ok := l.lastFive(b, p); ok {
			return duplicate, base
		}
		if b.seq != p.next {
			return outOfOrder, 0
		}
	}
	base = l.end()
	if l.n == capLog {
		panic("the log of the model is full: smaller bounds, or a larger capLog")
	}
	b.leader = l.leader
	l.batches[l.n] = b
	l.n++
	return appended, base
}

// lastFive finds a batch with b's epoch and sequences among the producer's last five.
func (l *log) lastFive(b batch, p producer) (base uint8, ok bool) {
	base = l.end()
	for i, seen := int(l.n)-1, 0; i >= p.from && seen < 5; i-- {
		x := l.batches[i]
		base -= x.width()
		if x.kind == marker {
			continue
		}
		if x.seq == b.seq && x.width() == b.width() {
			return base, true
		}
		seen++
	}
	return 0, false
}

// epochEnd is where the log of a leader epoch ends.
func (l *log) epochEnd(epoch int) uint8 {
	if epoch < 0 {
		return 0
	}
	if epoch < int(l.leader) {
		return l.leaderStart
	}
	return l.end()
}

// lose is an unclean election: the last n batches are gone.
func (l *log) lose(n uint8) {
	for range n {
		l.n--
		l.batches[l.n] = batch{}
	}
	l.forgot = min(l.forgot, l.n)
	l.leader++
	l.leaderStart = l.end()
}
