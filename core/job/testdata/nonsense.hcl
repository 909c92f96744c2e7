# Every value is fine alone, and none of them together.
job "ctr" {
  slo {
    max_lag = "2s"
  }
  stream "kafka" {
    brokers     = []
    topic       = "clicks"
    dead_letter = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  model {
    batch   = 100
    tablets = 2
  }
  workers {
    min   = 8
    max   = 4
    chunk = 64
    queue = 50
  }
  servers {
    count = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  forecast {
    interval = "10m"
    horizon  = "5m"
    season   = "4m"
  }
  autoscale {
    tau   = "5m"
    tick  = "2s"
    watch = "5s"
    fallback {
      lag_over          = "1m"
      utilisation_over  = 0.3
      utilisation_under = 0.9
    }
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
