package rpc

// ExitFenced is the exit code of a trainer that ended because its place is another process's now, or because a stop has taken it.
const ExitFenced = 3
