# Each value is within its own range, and beyond what another one leaves of it.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  model {
    batch = 512
  }
  workers {
    min          = 2
    max          = 4
    emulate_step = "1s"
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  autoscale {
    policy = "static"
    params {
      workers = 5.5
    }
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
