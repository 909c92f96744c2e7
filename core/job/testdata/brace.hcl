# One brace too many.
job "ctr" {
  slo {
    max_lag = "20m"
  }
}
}
