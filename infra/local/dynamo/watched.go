package dynamo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// watchScript becomes the program, and leaves behind a shell that kills it when
// the pipe on file descriptor 3 ends without a word: then the parent is gone,
// and has not said that it reaped the program (whose id could be reused).
const watchScript = `(read -r word <&3 || kill -9 $$) >/dev/null 2>&1 & exec "$0" "$@" 3<&-`

// watched is a process that does not outlive its parent.
type watched struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

func startWatched(program string, args, env []string, stdout, stderr io.Writer) (*watched, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", watchScript, program}, args...)...) //nolint:noctx // it outlives every context and is stopped by name
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, stderr, env
	cmd.ExtraFiles = []*os.File{reader}
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	_ = reader.Close()
	if err != nil {
		_ = writer.Close()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	p := &watched{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		_, _ = io.WriteString(writer, "reaped\n")
		_ = writer.Close()
		close(p.done)
	}()
	return p, nil
}

func (p *watched) Done() <-chan struct{} { return p.done }

func (p *watched) Wait() error {
	<-p.done
	return p.err
}

func (p *watched) Kill() error { return p.signal(syscall.SIGKILL) }

func (p *watched) Stop(grace time.Duration) {
	_ = p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	}
	_ = p.Kill()
	<-p.done
}

func (p *watched) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to %s: %w", sig, p.cmd.Path, err)
	}
	return nil
}
