# Attributes of another optimiser.
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
    optimiser "sgd" {
      learning_rate = 0.1
      beta1         = 0.9
      epsilon       = 1e-8
    }
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
