package chat

// State says whether a conversation takes messages.
type State string

// The states of a conversation.
const (
	Active         State = "active"
	StateDissolved State = "dissolved"
)

// Visibility says from where on a new member of a group may read.
type Visibility string

// The visibilities.
const (
	VisibleAll       Visibility = "all"       // from the first message
	VisibleSinceJoin Visibility = "sinceJoin" // from the message that tells of the joining
)

// Role is what a member of a group may do.
type Role string

// The roles.
const (
	Owner Role = "owner"
	Admin Role = "admin"
	Plain Role = "member"
)

// Conversation is the head of a ledger: the one item whose conditional change
// hands out the next seq.
type Conversation struct {
	ConversationID string     `json:"conversationId"`
	Kind           Kind       `json:"kind"`
	LastSeq        int64      `json:"lastSeq"`
	MembersVersion int64      `json:"membersVersion"` // one more with each change of the roster
	MemberCount    int        `json:"memberCount"`
	State          State      `json:"state"`
	Title          string     `json:"title,omitempty"`
	Owner          string     `json:"owner,omitempty"`
	Visibility     Visibility `json:"visibility,omitempty"`
	CreatedAt      int64      `json:"createdAt"` // ms
	UpdatedAt      int64      `json:"updatedAt"` // ms
}

// Member is one line of a conversation's roster.
type Member struct {
	ConversationID string `json:"conversationId"`
	UserID         string `json:"userId"`
	Role           Role   `json:"role"`
	JoinSeq        int64  `json:"joinSeq"`  // the first seq the member may read
	JoinedAt       int64  `json:"joinedAt"` // ms
}

// Range is the seqs from From through To, both included. It is empty when To is
// smaller than From.
type Range struct {
	From, To int64
}
