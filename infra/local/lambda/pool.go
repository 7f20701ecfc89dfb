package lambda

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pool has the processes of one function.
//
// Calls wait in the queue only while every process is at work and no further
// one may start: whatever becomes free goes to the first in the queue, never
// around it.
type pool struct {
	fn      Function
	cfg     Config
	counter *sync.WaitGroup // Service.processes

	mu         sync.Mutex
	closed     bool
	executable int                   // how often it was replaced
	all        map[*sandbox]struct{} // including those that start or end
	idle       []*sandbox            // the most recently used last
	queue      []chan *sandbox       // each of capacity 1; closed when the pool is
	stats      Stats
}

func newPool(fn Function, cfg Config, counter *sync.WaitGroup) *pool {
	return &pool{fn: fn, cfg: cfg, counter: counter, all: make(map[*sandbox]struct{}), stats: Stats{Name: fn.LogicalID}}
}

// result is how an invocation ended.
type result struct {
	payload       []byte
	functionError string
	err           error
	logged        string // what Lambda itself writes to the function's log, for what the function could not say
}

func (p *pool) invoke(ctx context.Context, payload []byte) (result, error) {
	proc, err := p.acquire(ctx)
	if err != nil {
		return result{}, err
	}
	inv := newInvocation(payload)
	// Not bound to ctx any more: Lambda does not cancel an invocation.
	go p.carryOut(proc, inv) //nolint:gosec,contextcheck // so is its context
	select {
	case res := <-inv.result:
		return res, res.err
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
}

// carryOut takes an invocation to its end. It needs more than one process when
// an idle one turns out to have ended unnoticed.
func (p *pool) carryOut(proc *sandbox, inv *invocation) {
	for !p.run(proc, inv) {
		var err error
		if proc, err = p.acquire(context.Background()); err != nil {
			inv.result <- result{err: err}
			return
		}
	}
}

// acquire returns an idle process, or one that is still to be started, which
// the caller must do.
func (p *pool) acquire(ctx context.Context) (*sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if last := len(p.idle) - 1; last >= 0 {
		proc := p.idle[last]
		p.idle = p.idle[:last]
		proc.expiry.Stop()
		p.mu.Unlock()
		return proc, nil
	}
	if len(p.all) < p.fn.ReservedConcurrency {
		proc := p.add()
		p.mu.Unlock()
		return proc, nil
	}
	turn := make(chan *sandbox, 1)
	p.queue = append(p.queue, turn)
	p.mu.Unlock()
	return p.wait(ctx, turn)
}

func (p *pool) wait(ctx context.Context, turn chan *sandbox) (*sandbox, error) {
	limit, stop := p.limit(p.cfg.QueueWait)
	defer stop()
	var gaveUp error
	select {
	case proc, open := <-turn:
		if !open {
			return nil, ErrClosed
		}
		return proc, nil
	case <-ctx.Done():
		gaveUp = fmt.Errorf("%w: all %d processes are busy: %w", ErrTooManyRequests, p.fn.ReservedConcurrency, ctx.Err())
	case <-limit:
		gaveUp = fmt.Errorf("%w: all %d processes stayed busy for %v", ErrTooManyRequests, p.fn.ReservedConcurrency, p.cfg.QueueWait)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.queue, turn); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		return nil, gaveUp
	}
	// It was this call's turn in the same moment; turn has been filled or closed.
	if proc, open := <-turn; open {
		return proc, nil
	}
	return nil, ErrClosed
}

// add makes a process that is still to be started. p.mu is held.
func (p *pool) add() *sandbox {
	proc := newSandbox(p)
	proc.executable = p.executable
	p.all[proc] = struct{}{}
	p.counter.Add(1)
	return proc
}

// release takes back a process that has asked for its next invocation. If there is
// none it is frozen, as in the cloud: what it still does in the background stands still.
func (p *pool) release(proc *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, here := p.all[proc]; !here {
		return // it has ended meanwhile
	}
	if p.closed || proc.executable != p.executable {
		proc.kill() // who is in the queue starts another when it is gone
		return
	}
	if len(p.queue) > 0 {
		p.nextInQueue() <- proc
		return
	}
	proc.freeze()
	p.idle = append(p.idle, proc)
	proc.expiry = time.AfterFunc(p.cfg.IdleAfter, func() { p.expire(proc) })
	if p.fn.Debug {
		proc.expiry.Stop()
	}
}

// expire ends a process that has been idle for too long.
func (p *pool) expire(proc *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, proc); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		proc.kill()
	}
}

// remove forgets a process that has ended, or did not start, and lets the first
// in the queue start another.
func (p *pool) remove(proc *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, proc)
	if i := slices.Index(p.idle, proc); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		proc.expiry.Stop()
	}
	if len(p.queue) > 0 { // never so in a closed pool
		p.nextInQueue() <- p.add()
	}
}

func (p *pool) nextInQueue() chan<- *sandbox {
	turn := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	return turn
}

// close refuses calls, those in the queue too, and ends idle processes.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, turn := range p.queue {
		close(turn)
	}
	p.queue = nil
	p.endIdle()
}

// renew makes old ones of all processes that there are.
func (p *pool) renew() {
	p.mu.Lock()
	p.executable++
	p.endIdle()
	p.mu.Unlock()
	p.warm()
}

// endIdle ends idle processes. p.mu is held.
func (p *pool) endIdle() {
	for _, proc := range p.idle {
		proc.expiry.Stop()
		proc.kill()
	}
	p.idle = nil
}

// warm starts the process of a function to debug, if there is none.
func (p *pool) warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fn.Debug || p.closed || len(p.all) > 0 {
		return
	}
	proc := p.add()
	go func() {
		failure := proc.start(newInvocation(nil))
		switch {
		case failure == nil:
			p.release(proc)
		case failure.logged != "":
			p.cfg.Output(p.fn.LogicalID, failure.logged)
		}
	}()
}

// limit is a timer, which never fires for a function to debug.
func (p *pool) limit(d time.Duration) (fired <-chan time.Time, stop func() bool) {
	timer := time.NewTimer(d)
	if p.fn.Debug {
		timer.Stop()
	}
	return timer.C, timer.Stop
}

// killAll ends every process and returns how many were not ending already.
func (p *pool) killAll() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	killed := 0
	for proc := range p.all {
		if proc.kill() {
			killed++
		}
	}
	return killed
}

func (p *pool) snapshot() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Processes, s.Idle, s.Waiting = len(p.all), len(p.idle), len(p.queue)
	return s
}

// count changes the statistics.
func (p *pool) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}
