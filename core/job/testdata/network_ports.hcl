# Every value is fine alone.
job "ctr" {
  stream "kafka" {
    brokers = ["kafka-1:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
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
  network {
    listen = ":20500"
    ports  = "20000-20999"
  }
  backend "local" {
  }
}
