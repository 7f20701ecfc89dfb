package push

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Encoder makes frames, for one batch of messages. It encodes each message once, or
// twice if it is withheld from some, and each set of updates once, however many devices
// get it; the frames are shared and must not be changed. It is not safe for concurrent
// use.
type Encoder struct {
	messages map[messageKey][]byte
	frames   map[string][][]byte
}

type messageKey struct {
	conversationID chat.ConversationID
	seq            int64
	withheld       bool
}

// NewEncoder makes an empty Encoder.
func NewEncoder() *Encoder {
	return &Encoder{messages: map[messageKey][]byte{}, frames: map[string][][]byte{}}
}

// Frames coalesces updates, in their order, into as few push frames of at most
// wire.MaxFrameBytes as that order allows. An update whose messages do not fit
// one frame goes on in the next, with the same committedMaxSeq; one without
// messages is left out. It errs if a single message is too large for a frame,
// which chat.Message.Validate rules out.
func (e *Encoder) Frames(updates []wire.Update) ([][]byte, error) {
	key := keyOf(updates)
	if frames, ok := e.frames[key]; ok {
		return frames, nil
	}
	p := packer{opening: `{"type":"` + wire.TypePush + `","updates":[`}
	for _, u := range updates {
		if err := e.pack(&p, u); err != nil {
			return nil, err
		}
	}
	e.frames[key] = p.finish()
	return e.frames[key], nil
}

func (e *Encoder) pack(p *packer, u wire.Update) error {
	id, err := wire.Encode(u.ConversationID)
	if err != nil {
		return fmt.Errorf("encoding conversation id %q: %w", u.ConversationID, err)
	}
	begin := `{"conversationId":` + string(id) + `,"messages":[`
	end := `],"committedMaxSeq":` + strconv.FormatInt(u.CommittedMaxSeq, 10) + `}`
	open := false
	for _, m := range u.Messages {
		encoded, err := e.encode(m)
		if err != nil {
			return err
		}
		if open && p.fits(len(",")+len(encoded)+len(end)) {
			p.write(",", string(encoded))
			continue
		}
		if open {
			p.write(end)
		}
		if !p.begin(len(begin) + len(encoded) + len(end)) {
			return fmt.Errorf("message %d of %s takes %d bytes and fits no frame", m.Seq, u.ConversationID, len(encoded))
		}
		p.write(begin, string(encoded))
		open = true
	}
	if open {
		p.write(end)
	}
	return nil
}

func (e *Encoder) encode(m chat.Message) ([]byte, error) {
	key := messageKey{m.ConversationID, m.Seq, m.Withheld}
	if encoded, ok := e.messages[key]; ok {
		return encoded, nil
	}
	encoded, err := wire.Encode(m)
	if err != nil {
		return nil, fmt.Errorf("encoding message %d of %s: %w", m.Seq, m.ConversationID, err)
	}
	e.messages[key] = encoded
	return encoded, nil
}

// keyOf tells sets of updates apart. The messages of a conversation ascend and are
// taken from one batch, so the first and the last say which; those that are left out
// before one, and those that are withheld, are named.
func keyOf(updates []wire.Update) string {
	var b strings.Builder
	for _, u := range updates {
		n := len(u.Messages)
		if n == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d:%s %d-%d/%d<%d ", len(u.ConversationID), u.ConversationID,
			u.Messages[0].Seq, u.Messages[n-1].Seq, n, u.CommittedMaxSeq)
		for i, m := range u.Messages {
			if i > 0 && m.Seq != u.Messages[i-1].Seq+1 {
				fmt.Fprintf(&b, "~%d ", m.Seq)
			}
			if m.Withheld {
				fmt.Fprintf(&b, "!%d ", m.Seq)
			}
		}
	}
	return b.String()
}

// NotifyFrames coalesces heads into notify frames of at most
// wire.MaxFrameBytes.
func NotifyFrames(heads []wire.Head) ([][]byte, error) {
	p := packer{opening: `{"type":"` + wire.TypeNotify + `","updates":[`}
	for _, h := range heads {
		encoded, err := wire.Encode(h)
		if err != nil {
			return nil, fmt.Errorf("encoding the head of %s: %w", h.ConversationID, err)
		}
		if !p.begin(len(encoded)) {
			return nil, fmt.Errorf("the head of %s takes %d bytes and fits no frame", h.ConversationID, len(encoded))
		}
		p.write(string(encoded))
	}
	return p.finish(), nil
}

// packer fills frames that are an opening, elements between commas, and an end.
type packer struct {
	opening string
	current []byte
	frames  [][]byte
}

const closing = "]}"

// begin makes room for an element of n bytes: behind a comma in the current
// frame or first in a new one. It is false for an element that fits no frame.
func (p *packer) begin(n int) bool {
	if len(p.opening)+n+len(closing) > wire.MaxFrameBytes {
		return false
	}
	if p.current != nil && p.fits(len(",")+n) {
		p.write(",")
		return true
	}
	p.finish()
	p.current = []byte(p.opening)
	return true
}

// fits reports whether n more bytes leave room for the end of the frame.
func (p *packer) fits(n int) bool { return len(p.current)+n+len(closing) <= wire.MaxFrameBytes }

func (p *packer) write(parts ...string) {
	for _, s := range parts {
		p.current = append(p.current, s...)
	}
}

// finish ends the current frame, if there is one, and returns all of them.
func (p *packer) finish() [][]byte {
	if p.current != nil {
		p.frames = append(p.frames, append(p.current, closing...))
		p.current = nil
	}
	return p.frames
}
