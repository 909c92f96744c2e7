package rpc

// MemberStateName is a membership state as people read it; "not joined" when there is none.
func MemberStateName(st MemberState) string {
	switch st {
	case MemberState_MEMBER_STATE_JOINING:
		return "joining"
	case MemberState_MEMBER_STATE_READY:
		return "ready"
	case MemberState_MEMBER_STATE_DRAINING:
		return "draining"
	case MemberState_MEMBER_STATE_DRAINED:
		return "drained"
	case MemberState_MEMBER_STATE_EXPELLED:
		return "expelled"
	}
	return "not joined"
}
