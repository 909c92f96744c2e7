# A slip of a unit: three days in steps of a second. And a forecaster that does not exist.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  forecast {
    interval = "1s"
    season   = ["24h", "7d"]
    model    = "seasonnal"
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
