package chat

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// validateName refuses what people cannot be shown as a name: it has something to
// see, and nothing that turns the direction of the text around it.
func validateName(field, what, name string) error {
	switch {
	case !strings.ContainsFunc(name, isVisible):
		return FieldErrorf(CodeBadRequest, field, "%s has at least one visible character", what)
	case strings.ContainsFunc(name, isDirectionControl):
		return FieldErrorf(CodeBadRequest, field, "%s has no control of the text's direction, such as U+202E", what)
	}
	return nil
}

// isVisible reports whether a character shows by itself. One that this version of
// Unicode does not know counts: it may be a newer emoji.
func isVisible(r rune) bool {
	const blankBraille = '\u2800'
	return r != blankBraille && !unicode.IsSpace(r) &&
		!unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.M, unicode.Z, unicode.Other_Default_Ignorable_Code_Point)
}

func isDirectionControl(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// looksLikeSystem reports whether people could take a user id for SystemSender:
// in another case, with accents, spaces, marks or punctuation, in another style of
// the letters (full-width, bold, circled) or in letters that look alike.
func looksLikeSystem(id string) bool {
	var seen strings.Builder
	for _, r := range norm.NFKD.String(id) {
		r = latin(unicode.ToLower(latin(r))) // a capital may look like another letter than its small one
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			seen.WriteRune(r)
		}
	}
	return strings.ReplaceAll(seen.String(), "rn", "m") == SystemSender
}

// latin returns the small letter that a character looks like: those white on black and the
// regional indicators all, of others those of SystemSender. What looks like none stays as
// it is. The list is from confusables.txt of Unicode Technical Standard 39; what
// normalization makes letters of by itself is not in it.
func latin(r rune) rune {
	for _, a := range []rune{'🅐', '🅰', '🇦'} { // each the first of an alphabet
		if a <= r && r < a+26 {
			return 'a' + r - a
		}
	}
	for _, like := range []struct {
		letter rune
		others string
	}{
		{'s', "ѕꜱꮪꮥտꓢʂƽ𐑈𑣁𖼺𐊖"},
		{'y', "уүұγυⲩʏɣɏƴỿꭚყꭹꮍꓬ¥ᶌ𑣄𑣜𖽃𐊲"},
		{'t', "тҭτⲧᴛŧƭʈⱦꭲꓔ₮𑢼𖼊⊤⟙🝨𐊗𐊱𐌕"},
		{'e', "еҽєεⲉᴇɇɛꬲꭼꓰⴹ℮𑣆𑣎⋿𐊆"},
		{'m', "мӎμⲙᴍɱᵯϻꮇꓟᗰᛖ₥𐊰𐌑"},
	} {
		if strings.ContainsRune(like.others, r) {
			return like.letter
		}
	}
	return r
}
