package wiretest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/inorder-im/inorder/shared/wire"
)

// Server is what the scripts are played against.
type Server struct {
	Name     string // by which a script's only knows it
	Patience time.Duration
	// User is what the user of a script is called there.
	User func(name string) string
	// Dial connects a device.
	Dial func(ctx context.Context, userID, deviceID string) (*websocket.Conn, error)

	// Record has it fill in, in the scripts, the answers and pushes of steps without any.
	Record bool
}

// Play plays all scripts of a folder that are for this server. document is the
// protocol's AsyncAPI document, against which it holds all frames, too.
func Play(t *testing.T, folder, document string, server func(t *testing.T) Server) {
	t.Helper()
	scripts, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) == 0 {
		t.Fatalf("there are no scripts in %s", folder)
	}
	schemas, err := loadSchemas(document)
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			if len(script.Only) > 0 && !slices.Contains(script.Only, s.Name) {
				t.Skip(script.Why)
			}
			p := player{server: s, schemas: schemas, names: names{user: s.User}, devices: map[string]*device{}}
			defer p.close()
			err := p.play(t.Context(), script)
			if s.Record {
				err = errors.Join(err, os.WriteFile(filepath.Join(folder, name+".json"), format(script), 0o644)) //nolint:gosec // it is for everyone
			}
			if err != nil {
				t.Errorf("%s\n%v", script.About, err)
			}
		})
	}
}

type player struct {
	server  Server
	schemas *schemas
	names   names
	devices map[string]*device
	all     []*socket
}

// device is what a device of the script has heard, on whatever socket.
type device struct {
	socket *socket // the one it speaks on

	mu      sync.Mutex
	news    chan struct{} // has room for one; filled by what comes
	answers []any
	pushes  []any // that the script has not come to
	heard   []any // that it expected
	wrong   error // the first frame that no server may send
}

type socket struct {
	conn *websocket.Conn
	done chan struct{}
}

func (p *player) close() {
	for _, s := range p.all {
		_ = s.conn.CloseNow()
		<-s.done
	}
}

func (p *player) play(ctx context.Context, script Script) error {
	p.names.bind(script.Devices)
	for _, name := range script.Devices {
		p.devices[name] = &device{news: make(chan struct{}, 1)}
		if err := p.connect(ctx, name); err != nil {
			return err
		}
	}
	for i := range script.Steps {
		step := &script.Steps[i]
		if p.devices[step.By] == nil {
			return fmt.Errorf("step %d: there is no device %q", i+1, step.By)
		}
		if err := p.do(ctx, i+1, step); err != nil {
			return fmt.Errorf("step %d, %s: %s: %w", i+1, step.By, step.Send, err)
		}
	}
	return p.end(ctx)
}

// end asks each device for a last answer, so that there was time for one that nobody
// asked for, and sees to it that nothing else came.
func (p *player) end(ctx context.Context) error {
	for name, d := range p.devices {
		if d.socket == nil {
			continue
		}
		step := Step{By: name, Send: json.RawMessage(`{"action":"ping"}`), Reply: map[string]any{"serverTime": "$any"}}
		if err := p.do(ctx, 1000, &step); err != nil {
			return fmt.Errorf("at the end, %s: %w", name, err)
		}
	}
	for name, d := range p.devices {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, push := range d.pushes {
			if !slices.ContainsFunc(d.heard, func(one any) bool { return show(one) == show(push) }) { // one may be repeated
				return fmt.Errorf("nobody expected that %s is pushed %s", name, show(push))
			}
		}
	}
	return nil
}

func (p *player) do(ctx context.Context, number int, step *Step) error {
	d := p.devices[step.By]
	isNew := p.server.Record && step.Reply == nil && step.Error == nil && step.Answer == nil && len(step.Pushes) == 0
	switch {
	case isNew && step.Send != nil:
		return p.record(ctx, number, step)
	case step.Connect:
		if err := p.connect(ctx, step.By); err != nil {
			return err
		}
	case step.Disconnect:
		_ = d.socket.conn.Close(websocket.StatusNormalClosure, "")
		<-d.socket.done
		d.socket = nil
	default:
		if err := p.ask(ctx, d, number, step); err != nil {
			return err
		}
	}
	if isNew {
		return p.recordPushes(ctx, step)
	}
	for _, names := range sortedPushes(step.Pushes) {
		for name := range strings.SplitSeq(names, ", ") {
			for _, push := range step.Pushes[names] {
				if err := p.hear(ctx, name, push); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func sortedPushes(pushes map[string][]any) []string {
	var keys []string
	for names := range pushes {
		keys = append(keys, names)
	}
	slices.Sort(keys)
	return keys
}

// ask sends a step's request and compares the answer.
func (p *player) ask(ctx context.Context, d *device, number int, step *Step) error {
	ctx, cancel := context.WithTimeout(ctx, p.server.Patience)
	defer cancel()
	frame, id, action, err := p.names.frame(step.Send, number)
	if err != nil {
		return err
	}
	want := step.want(id, action)
	for {
		if err := d.write(ctx, frame); err != nil {
			return err
		}
		if want == nil {
			return nil
		}
		got, err := d.answer(ctx)
		if err != nil {
			return err
		}
		if err := p.schemas.exchange(frame, got); err != nil {
			return err
		}
		if err = p.names.match(want, withoutMessage(got)); err == nil || !step.Eventually {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond): // nothing tells when the rest is done
		}
	}
}

func (d *device) write(ctx context.Context, frame []byte) error {
	if d.socket == nil {
		return errors.New("it is not connected")
	}
	return d.socket.conn.Write(ctx, websocket.MessageText, frame)
}

// want is the frame that a step expects as its answer, nil if none.
func (s *Step) want(id, action string) any {
	switch {
	case s.Reply != nil:
		return map[string]any{"type": wire.TypeReply, "id": id, "action": action, "result": s.Reply}
	case s.Error != nil:
		return map[string]any{"type": wire.TypeError, "id": id, "action": action, "error": s.Error}
	case s.Answer != nil:
		return s.Answer
	}
	return nil
}

// withoutMessage takes the text out of an error, which is for people.
func withoutMessage(frame any) any {
	if object, ok := frame.(map[string]any); ok {
		if body, ok := object["error"].(map[string]any); ok {
			delete(body, "message")
		}
	}
	return frame
}

// hear waits for a push.
func (p *player) hear(ctx context.Context, name string, want any) error {
	ctx, cancel := context.WithTimeout(ctx, p.server.Patience)
	defer cancel()
	d := p.devices[name]
	if d == nil {
		return fmt.Errorf("there is no device %q", name)
	}
	for {
		found, why := p.heard(d, want)
		if found {
			return nil
		}
		select {
		case <-d.news:
		case <-ctx.Done():
			return fmt.Errorf("%s is not pushed %s: %w", name, show(want), errors.Join(why...))
		}
	}
}

func (p *player) heard(d *device, want any) (found bool, why []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, push := range d.pushes {
		err := p.names.match(want, push)
		if err == nil {
			d.heard = append(d.heard, push)
			d.pushes = slices.Delete(d.pushes, i, i+1)
			return true, nil
		}
		why = append(why, fmt.Errorf("%s: %w", show(push), err))
	}
	return false, append(why, d.wrong)
}

// connect opens a socket for the device.
func (p *player) connect(ctx context.Context, name string) error {
	within, cancel := context.WithTimeout(ctx, p.server.Patience)
	defer cancel()
	user, deviceID, ok := strings.Cut(name, "/")
	if !ok {
		deviceID = "phone"
	}
	conn, err := p.server.Dial(within, p.server.User(user), deviceID)
	if err != nil {
		return fmt.Errorf("connecting %s: %w", name, err)
	}
	conn.SetReadLimit(wire.MaxFrameBytes)
	d := p.devices[name]
	d.socket = &socket{conn: conn, done: make(chan struct{})}
	p.all = append(p.all, d.socket)
	go p.read(ctx, d, d.socket)
	return nil
}

func (p *player) read(ctx context.Context, d *device, s *socket) {
	defer close(s.done)
	for {
		_, data, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		d.take(data, p.schemas)
	}
}

// take takes in a frame.
func (d *device) take(data []byte, schemas *schemas) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var frame map[string]any
	err := json.Unmarshal(data, &frame)
	kind, _ := frame["type"].(string)
	if kind == wire.TypeReply || kind == wire.TypeError || kind == "" {
		d.answers = append(d.answers, any(frame))
	} else {
		err = errors.Join(err, schemas.check(kind, frame))
		d.pushes = append(d.pushes, single(frame)...)
	}
	if d.wrong == nil && err != nil {
		d.wrong = fmt.Errorf("%.2000s: %w", data, err)
	}
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// single makes one push of each message and each head in a push: what comes together
// is up to the server.
func single(frame map[string]any) []any {
	updates, ok := frame["updates"].([]any)
	if !ok {
		return []any{frame}
	}
	var all []any
	for _, u := range updates {
		update, _ := u.(map[string]any)
		messages, ok := update["messages"].([]any)
		if !ok {
			all = append(all, map[string]any{"type": frame["type"], "updates": []any{u}})
			continue
		}
		for _, m := range messages {
			one := copyOf(update)
			one["messages"] = []any{m}
			all = append(all, map[string]any{"type": frame["type"], "updates": []any{any(one)}})
		}
	}
	return all
}

// answer waits for the next frame that is no push.
func (d *device) answer(ctx context.Context) (any, error) {
	for {
		d.mu.Lock()
		answers, wrong := d.answers, d.wrong
		if len(answers) > 0 {
			d.answers = answers[1:]
		}
		d.mu.Unlock()
		if wrong != nil {
			return nil, wrong
		}
		if len(answers) > 0 {
			return answers[0], nil
		}
		select {
		case <-d.news:
		case <-d.socket.done:
			return nil, errors.New("the socket ended before the answer")
		case <-ctx.Done():
			return nil, errors.New("there is no answer")
		}
	}
}
