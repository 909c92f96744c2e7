# The objective is shorter than a step, and the model has no layers, beside a mistake.
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
    kind   = "lr"
    hidden = [3]
    batch  = 512
  }
  workers {
    min          = 5
    max          = 4
    emulate_step = "5s"
  }
  slo {
    max_lag = "1s"
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  autoscale {
    watch  = "1s"
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
