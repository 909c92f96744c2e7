# The line slo { is missing: what closes it closes the job, and the job's own brace closes nothing.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
    max_lag = "20m"
  }
  features {
    label = "click"
  }
}
