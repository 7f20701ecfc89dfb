package push

import (
	"fmt"
	"iter"
	"strconv"
	"sync"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Encoder makes frames, for one batch of messages. It encodes each message once, or
// twice if it is withheld from some, however many devices get it.
type Encoder struct {
	mu       sync.Mutex
	messages map[messageKey]encoded
	err      error
}

type encoded struct {
	bytes []byte
	err   error
}

type messageKey struct {
	conversationID chat.ConversationID
	seq            int64
	withheld       bool
}

// NewEncoder makes an empty Encoder.
func NewEncoder() *Encoder {
	return &Encoder{messages: map[messageKey]encoded{}}
}

// Frames coalesces updates, in their order, into as few push frames of at most
// wire.MaxFrameBytes as that order allows. An update whose messages do not fit
// one frame goes on in the next, with the same committedMaxSeq; one without
// messages is left out. So is a message that cannot be encoded or fits no frame, which
// chat.Message.Validate rules out; see Err.
//
// A frame is made when it is asked for, and kept by nobody: those of a group in which
// many write are others for each of them, who is not pushed what it sent itself.
func (e *Encoder) Frames(updates []wire.Update) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		p := packer{yield: yield}
		for _, u := range updates {
			if !e.pack(&p, u) {
				return
			}
		}
		p.finish()
	}
}

// Err is why the first message was left out that was; nil if there is none.
func (e *Encoder) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// pack adds an update. It is false once no more frames are wanted.
func (e *Encoder) pack(p *packer, u wire.Update) bool {
	id, _ := wire.Encode(u.ConversationID) // a string always can be encoded
	begin := `{"conversationId":` + string(id) + `,"messages":[`
	end := `],"committedMaxSeq":` + strconv.FormatInt(u.CommittedMaxSeq, 10) + `}`
	room := wire.MaxFrameBytes - len(opening) - len(begin) - len(end) - len(closing)
	open := false
	for _, m := range u.Messages {
		encoded := e.encode(m, room)
		if encoded == nil {
			continue
		}
		if open && p.fits(len(",")+len(encoded)+len(end)) {
			p.current = append(append(p.current, ','), encoded...)
			continue
		}
		if open {
			p.current = append(p.current, end...)
		}
		if !p.begin(len(begin) + len(encoded) + len(end)) {
			return false
		}
		p.current = append(append(p.current, begin...), encoded...)
		open = true
	}
	if open {
		p.current = append(p.current, end...)
	}
	return true
}

// encode returns nil for a message that cannot be encoded in so many bytes.
func (e *Encoder) encode(m chat.Message, room int) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := messageKey{m.ConversationID, m.Seq, m.Withheld}
	of, ok := e.messages[key]
	if !ok {
		of.bytes, of.err = wire.Encode(m)
		e.messages[key] = of
	}
	if of.err == nil && len(of.bytes) > room {
		of.err = fmt.Errorf("its %d bytes fit no frame", len(of.bytes))
	}
	if of.err == nil {
		return of.bytes
	}
	if e.err == nil {
		e.err = fmt.Errorf("encoding message %d of %s: %w", m.Seq, m.ConversationID, of.err)
	}
	return nil
}

// packer fills frames that are the opening, updates between commas, and the closing.
type packer struct {
	current []byte
	yield   func(frame []byte) bool
}

const (
	opening = `{"type":"` + wire.TypePush + `","updates":[`
	closing = "]}"
)

// begin makes room for an update that takes n bytes with its first message: behind a
// comma in the current frame, or first in a new one. It is false once no more frames
// are wanted.
func (p *packer) begin(n int) bool {
	if p.current != nil && p.fits(len(",")+n) {
		p.current = append(p.current, ',')
		return true
	}
	if !p.finish() {
		return false
	}
	p.current = append(make([]byte, 0, len(opening)+n+len(closing)), opening...)
	return true
}

// fits reports whether n more bytes leave room for the end of the frame.
func (p *packer) fits(n int) bool { return len(p.current)+n+len(closing) <= wire.MaxFrameBytes }

// finish ends the current frame, if there is one.
func (p *packer) finish() bool {
	return p.current == nil || p.yield(append(p.current, closing...))
}
