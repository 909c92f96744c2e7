# The policy looks further ahead than the forecast does, and decides less often than it could.
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
    policy = "quantile"
    tick   = "2h"
    params {
      horizon = "90m"
      epsilon = 2
    }
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
