job "ctr" {
  slo {
    max_lag = "4s"
  }
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  model {
    linger = "1h"
  }
  workers {
    min = 2
    max = 4
  }
  servers {
    count = 2
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  autoscale {
    watch = "1s"
  }
  checkpoint {
    dir = "ckpt"
  }
  network {
    ports = "30000-30002"
  }
  backend "local" {}
}
