package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

func TestNamesCanBeShown(t *testing.T) {
	t.Parallel()
	for kind, validate := range map[string]func(field, name string) error{"title": chat.ValidateTitle, "userId": chat.ValidateUserID} {
		for _, name := range []string{
			"a", "#", "1", "。", "क्षि", "\u0301e", "e\u0301", "👩\u200d💻", "✈\ufe0f", " a ", "\u200ba", "עברית", "نص", "a\u2028b", "\U0001fae9", "\U0003ffff", "\ue000",
		} {
			require.NoError(t, validate(kind, name), "%s %q", kind, name)
		}
		for _, name := range []string{
			"", " ", "\u00a0", "\u3000", "\u2028", // spaces
			"\u200b", "\u200c\u200d", "\u2060", "\ufeff", "\u00ad", "\U000e0041", // no width
			"\u034f", "\u3164", "\u115f\u1160", "\uffa0", "\u2800", "\ufe0f", "\u0301", // letters and marks that show nothing by themselves
			"a\u202eb", "\u202aa", "a\u202b", "a\u202c", "a\u202d", "a\u2066", "a\u2067b\u2069", "a\u2068", "a\u200e", "\u200fa", "\u061ca", // direction
			"a\nb", "a\x00", "\xff",
		} {
			err := validate(kind, name)
			refusal := &chat.Error{}
			require.ErrorAs(t, err, &refusal, "%s %q", kind, name)
			require.Equal(t, chat.CodeBadRequest, refusal.Code, "%s %q", kind, name)
			require.Equal(t, kind, refusal.Field, "%s %q", kind, name)
		}
	}
}

// Nobody comes under the name of what the product itself writes.
func TestNoUserLooksLikeSystem(t *testing.T) {
	t.Parallel()
	for what, id := range map[string]string{
		"itself":               chat.SystemSender,
		"capitals":             "SYSTEM",
		"another case":         "System",
		"spaces":               " s y s t e m\u00a0",
		"no width":             "sys\u200btem\ufeff",
		"soft hyphens":         "s\u00adystem",
		"a variation selector": "system\ufe0f",
		"punctuation":          "[sys-tem].",
		"full width":           "ｓｙｓｔｅｍ",
		"bold":                 "𝐬𝐲𝐬𝐭𝐞𝐦",
		"script":               "𝓢𝔂𝓼𝓽𝓮𝓶",
		"circled":              "ⓢⓨⓢⓣⓔⓜ",
		"squared":              "🅂🅈🅂🅃🄴🄼",
		"small capitals":       "ꜱʏꜱᴛᴇᴍ",
		"superscript":          "ˢʸˢᵗᵉᵐ",
		"a long s":             "ſyſtem",
		"a ligature":           "syﬆem",
		"Cyrillic":             "ѕуѕтем",
		"Cyrillic capitals":    "ЅУЅТЕМ",
		"one Cyrillic letter":  "syst\u0435m",
		"Greek":                "SΥSΤΕΜ",
		"Cherokee":             "ᏚᎩᏚᎢᎬᎷ",
		"Lisu":                 "ꓢꓬꓢꓔꓰꓟ",
		"accents":              "śýštéṁ",
		"rn for m":             "systern",
		"bold Greek":           "s𝛾s𝛕𝛆𝛍",
		"black circles":        "🅢🅨🅢🅣🅔🅜",
		"black squares":        "🆂🆈🆂🆃🅴🅼",
		"flags":                "🇸🇾🇸🇹🇪🇲",
		"signs":                "sys⊤em",
		"Miao":                 "𖼺𖽃𖼺𖼊em",
		"Warang Citi":          "𑣁𑢤𑣁𑢼𑢦m",
		"Warang Citi, small":   "s𑣜stem",
		"Old Italic":           "𐊖y𐊖𐌕𐊆𐌑",
	} {
		refusal := &chat.Error{}
		require.ErrorAs(t, chat.ValidateUserID("sub", id), &refusal, "%s: %q", what, id)
		require.Equal(t, "sub", refusal.Field)
		require.Contains(t, refusal.Message, `"system"`, "%s: %q", what, id)
		require.Error(t, chat.ValidateMembers("members", []string{"bob", id}), what)
		require.NoError(t, chat.ValidateKnownUserID("userId", id), "%s: who is there can be named", what)
		require.NoError(t, chat.ValidateKnownMembers("members", []string{"bob", id}), what)
	}
	for _, id := range []string{"systems", "system1", "1system", "systemd", "ystem", "sistem", "stem", "системa", "𝐬𝐲𝐬", "mesyts", "сyster", "auth0|system7", "🅢", "🇪🇸", "⊤", "👍"} {
		require.NoError(t, chat.ValidateUserID("sub", id), "%q", id)
	}
}

// A decoder of JSON puts U+FFFD for what is no Unicode: two ids would be one.
func TestUserIDsAreNotMended(t *testing.T) {
	t.Parallel()
	require.Equal(t, chat.CodeBadRequest, chat.CodeOf(chat.ValidateUserID("to", "a\ufffd")))
	for _, id := range []string{"\xed\xa0\x80", "a\xff", "\xc0\x80"} {
		require.Error(t, chat.ValidateUserID("to", id), "%q", id)
		require.Error(t, chat.ValidateKnownUserID("to", id), "%q", id)
	}
	// Ids that look the same stay two: which of them is meant is not guessed.
	require.NoError(t, chat.ValidateUserID("to", "e\u0301"))
	require.NoError(t, chat.ValidateUserID("to", "\u00e9"))
	require.NotEqual(t, chat.SingleID("a", "e\u0301"), chat.SingleID("a", "\u00e9"))
}
