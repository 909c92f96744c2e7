# Misspelt blocks and attributes, attributes in the wrong block, and one that has another name in its own.
job "ctr" {
  steam "kafka" {
    brokers = ["localhost:9092"]
    topik   = "clicks"
  }
  feature {
    label = "click"
    spase = ["user"]
  }
  workers {
    max     = 4
    max_lag = "20m"
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  autoscale {
    taw     = "10m"
    horizon = "30m"
    policy  = "kail"
    falback {
      lag_ower = "5m"
    }
  }
  checkpoint {
    dirr     = "cp"
    interval = "5m"
  }
  backend "locale" {
  }
}
