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
    policy = "kale"
    params {
      guard    = 0.5
      multiple = 1000
    }
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
