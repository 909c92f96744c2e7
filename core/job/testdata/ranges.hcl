# Numbers and lists outside of what makes sense.
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
    embedding_dim = 0
    hidden        = [64, -32, 16]
    batch         = 12.5
    l2            = -0.1
    seed          = "twelve"
    optimiser "adagrad" {
      learning_rate = 0
    }
  }
  workers {
    min  = 0
    max  = 1e12
    gpus = -1
    cpu  = 0
  }
  servers {
    count = 99999
  }
  throughput {
    theta = [0.0002, -1, 1e999]
  }
  autoscale {
    rho      = 0
    headroom = "a tenth"
    fallback {
      utilisation_over = 90
    }
  }
  checkpoint {
    dir  = "cp"
    keep = 0
  }
  backend "local" {
  }
}
