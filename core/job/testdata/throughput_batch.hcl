# A batch where none belongs.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
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
    batch = 1024
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
