package lambda

import (
	"bufio"
	"bytes"
	"io"
)

// maxLine is the longest line, in bytes, that is forwarded in one piece: the
// most that one CloudWatch Logs event took for long. A longer one is cut.
const maxLine = 256 << 10

// forwardLines calls emit for each line until the stream ends or fails, also
// for a last one without newline.
func forwardLines(stream io.Reader, emit func(line string)) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 2*maxLine)
	lines.Split(splitLine)
	for lines.Scan() {
		emit(lines.Text())
	}
}

func splitLine(data []byte, atEnd bool) (advance int, line []byte, err error) {
	end := bytes.IndexByte(data, '\n')
	switch {
	case end >= 0 && end <= maxLine:
		return end + 1, data[:end], nil
	case len(data) > maxLine:
		return maxLine, data[:maxLine], nil
	case atEnd && len(data) > 0:
		return len(data), data, nil
	}
	return 0, nil, nil
}
