# What is understood, and not built yet.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  model {
    mode = "sync"
  }
  workers {
    max = 4
  }
  servers {
    ratio = 2
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
    slots = 2
  }
}
