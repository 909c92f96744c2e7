# Labels that are too few, too many or unknown; blocks twice; blocks and attributes mixed up.
job "ctr" {
  slo "fast" {
    max_lag {
    }
  }
  slo {
  }
  stream "kafak" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
    tls     = true
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  model {
    optimiser "adamw" {
      learning_rate = 0.001
    }
  }
  model {
    kind = "lr"
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
  backend "local" "gpu" {
  }
}
