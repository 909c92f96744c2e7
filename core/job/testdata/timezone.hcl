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
    min = 2
    max = 4
  }
  servers {
    count = 2
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  forecast {
    timezone = "Europe/Berlinn"
  }
  checkpoint {
    dir = "ckpt"
  }
  backend "local" {}
}
