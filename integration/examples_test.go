package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/logtest"
	"github.com/inorder-im/inorder/integration/fault"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// The bot answers each command once, although it is killed on the way and was away for
// some of them, and ends at SIGTERM.
func TestExamples_Bot(t *testing.T) {
	t.Parallel()
	program := buildExample(t, "bot")
	name, aliceName := newUser("bot"), newUser("alice")
	start := func() *example {
		return startExample(t, "", program, "-server", hostOf(t, shared), "-user", name, "-data", filepath.Join(filepath.Dir(program), "bot.db"))
	}
	alice := mustConnect(t, shared, aliceName, "phone")
	conversation := chat.SingleID(aliceName, name)
	say := func(text string) {
		mustSend(t, alice, wire.Send{To: name, Text: text})
	}
	answers := func() (texts []string) {
		for _, m := range alice.messages(conversation) {
			if m.SenderID == name {
				texts = append(texts, m.Text)
			}
		}
		return texts
	}
	awaitAnswers := func(count int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(answers()) >= count }, patience, 5*time.Millisecond, "there are not %d answers", count)
	}

	bot := start()
	say("/time")
	awaitAnswers(1)
	_, err := time.Parse(time.RFC1123, answers()[0])
	require.NoError(t, err)

	var words []string
	for i := range 10 {
		words = append(words, fmt.Sprint("word ", i))
		say("/echo " + words[i])
	}
	say("you need not answer this")
	awaitAnswers(2)
	bot.kill()
	say("/echo are you there?")
	words = append(words, "are you there?")

	bot = start()
	awaitAnswers(1 + len(words))
	bot.end(syscall.SIGTERM)
	bot = start()
	say("/echo still there?")
	words = append(words, "still there?")
	awaitAnswers(1 + len(words))
	bot.end(syscall.SIGTERM)
	require.NoError(t, alice.sync(t.Context(), conversation))
	require.Equal(t, words, answers()[1:])
}

// Two people chat in two terminals; one of them loses the network for a while, and ends
// the program while something is still to be sent.
func TestExamples_CommandLine(t *testing.T) {
	t.Parallel()
	program := buildExample(t, "cli")
	network := startNetwork(t, shared)
	aliceName, bobName := newUser("alice"), newUser("bob")
	start := func(server, user string) *example {
		return startExample(t, "", program, "-server", server, "-user", user, "-data", filepath.Join(filepath.Dir(program), user+".db"))
	}
	aliceServer := hostOf(t, stack{Socket: network.URL()})
	alice, bob := start(aliceServer, aliceName), start(hostOf(t, shared), bobName)
	alice.await("-- online\n")
	bob.await("-- online\n")

	alice.say("/to "+bobName, "hello bob", "how are you?")
	bob.await("-- " + aliceName + ": 2 unread\n")
	bob.say("/to "+aliceName, "fine")
	for _, p := range []*example{alice, bob} {
		p.await("1 " + aliceName + ": hello bob\n2 " + aliceName + ": how are you?\n3 " + bobName + ": fine\n")
	}
	bob.say("/edit 3 very well", "/recall 1")
	for _, p := range []*example{alice, bob} {
		p.await("4 " + bobName + ": (edit of 3) very well\n")
	}
	bob.await("-- recall: FORBIDDEN")
	alice.say("/recall one", "/recall 0", "/recall 99") // none of them is another one
	alice.await("-- /list")
	alice.await("-- message 0 is not here\n-- message 99 is not here\n")
	alice.say("/recall 1")
	bob.await("5 " + aliceName + ": (recall of 1) \n")

	network.Away(true)
	alice.await("-- connecting\n")
	alice.say("from the tunnel")
	alice.await("is still in the outbox")
	network.Away(false)
	bob.await("6 " + aliceName + ": from the tunnel\n")
	alice.await("6 " + aliceName + ": from the tunnel\n")

	network.Away(true)
	alice.say("and good night", "/quit")
	alice.exited()
	network.Away(false)
	alice = start(aliceServer, aliceName)
	bob.await("7 " + aliceName + ": and good night\n")
	alice.await("-- online\n")
	alice.say("/list", "/to "+bobName)
	alice.await("-- " + bobName + ": 0 unread\n")
	alice.await("1 " + aliceName + ": (recalled)\n2 " + aliceName + ": how are you?\n3 " + bobName + ": very well\n")
	alice.say("/quit")
	bob.say("/quit")
	alice.exited()
	bob.exited()
	require.Equal(t, 1, strings.Count(bob.out.String(), "from the tunnel"))
	require.Equal(t, 1, strings.Count(bob.out.String(), "and good night"))
}

// buildExample builds an example as the program of somebody else: a module of its own,
// outside of this one. It needs nothing from the network that this module does not
// have.
func buildExample(t *testing.T, name string) (program string) {
	t.Helper()
	needLocal(t)
	require.NoError(t, dependOnTheProduct())
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "shared/client/examples", name))))
	program = filepath.Join(dir, "program")
	for _, args := range [][]string{{"mod", "edit", "-replace", "github.com/inorder-im/inorder=" + root}, {"build", "-o", program, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
	}
	return program
}

// hostOf is where a stack on this machine is.
func hostOf(t *testing.T, s stack) string {
	t.Helper()
	u, err := url.Parse(s.Socket)
	require.NoError(t, err)
	return u.Host
}

// startNetwork starts a network between a program and a stack.
func startNetwork(t *testing.T, s stack) *fault.Sockets {
	t.Helper()
	plan, err := fault.NewPlan(0, nil)
	require.NoError(t, err)
	network, err := fault.NewSockets(plan, s.Socket)
	require.NoError(t, err)
	t.Cleanup(network.Close)
	return network
}

// example is a program that runs.
type example struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *logtest.Log // of both its outputs
	ended chan struct{}
	err   error // of the process, once ended is closed
}

// startExample starts a program in a folder, which is killed with the test if it still
// runs.
func startExample(t *testing.T, dir, name string, args ...string) *example {
	t.Helper()
	p := &example{t: t, cmd: exec.Command(name, args...), out: &logtest.Log{}, ended: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *example) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// end asks the program to end, which it has to do well.
func (p *example) end(signal os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(signal))
	p.exited()
}

// exited waits until the program has ended well.
func (p *example) exited() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	select {
	case <-p.ended:
		require.NoError(p.t, p.err, "the program said:\n%s", p.out)
	case <-ctx.Done():
		require.FailNow(p.t, "the program does not end", "it said:\n%s", p.out)
	}
}

// say writes lines.
func (p *example) say(lines ...string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, strings.Join(lines, "\n")+"\n")
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		require.NoError(p.t, err)
	}
}

// await waits until the program has said something.
func (p *example) await(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.out.String(), text) }, patience, 5*time.Millisecond,
		"the program does not say %q, but:\n%s", text, p.out)
}
