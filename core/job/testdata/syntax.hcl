# Not HCL.
job "ctr" {
  slo {
    max_lag = 20m
  }
  stream "kafka {
    topic = "clicks"
  }
}
