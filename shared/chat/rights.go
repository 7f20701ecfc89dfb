package chat

// Action is something a member does to a group.
type Action string

// The actions that need a right.
const (
	ActSend     Action = "send"
	ActAdd      Action = "add a member"
	ActRemove   Action = "remove a member"
	ActLeave    Action = "leave"
	ActSetRole  Action = "change a role"
	ActSetTitle Action = "change the title"
	ActDissolve Action = "dissolve the group"
	ActRecall   Action = "recall another's message"
)

// May reports whether a member with this role may do the action. For ActRemove
// and ActRecall target is the role of the member concerned, and of a sender who
// is a member no more it is Plain; for the other actions it does not matter. The
// rules are the table in the package documentation.
func (r Role) May(action Action, target Role) bool {
	switch action {
	case ActSend, ActLeave:
		return true
	case ActAdd, ActSetTitle:
		return r == RoleOwner || r == RoleAdmin
	case ActRemove, ActRecall:
		return r == RoleOwner && target != RoleOwner || r == RoleAdmin && target == RolePlain
	case ActSetRole, ActDissolve:
		return r == RoleOwner
	}
	return false
}

// Successor returns the member a group passes on to when its owner leaves: the
// admin who joined first, or if there is none the member who did. Those who
// joined together are taken by userId. ok is false when no one is left.
func Successor(members []Member, leaving string) (next Member, ok bool) {
	for _, m := range members {
		if m.UserID == leaving {
			continue
		}
		if !ok || before(m, next) {
			next, ok = m, true
		}
	}
	return next, ok
}

func before(a, b Member) bool {
	if (a.Role == RoleAdmin) != (b.Role == RoleAdmin) {
		return a.Role == RoleAdmin
	}
	if a.JoinedAt != b.JoinedAt {
		return a.JoinedAt < b.JoinedAt
	}
	return a.UserID < b.UserID
}
