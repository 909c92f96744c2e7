job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  autoscale {
    policy = "hpa"
    params {
      taget       = 0.7
      tolerance   = -1
      down_window = 5
      up_window   = "3w"
      z           = 2
      guard       = 0

      windows {
      }
    }
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
