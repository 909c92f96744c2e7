# A horizon shorter than an interval: the gate window, which the file leaves out, is derived from it and no mistake of its own.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = ""
    sparse = ["user", "item"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  forecast {
    interval = "10m"
    horizon  = "1m"
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
