# A division by zero, a blank in a broker's host.
job "ctr" {
  stream "kafka" {
    brokers = ["a b:99999", "kafka-1:99999"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max = 4 / 0
  }
  throughput {
    theta = [0.1 / 0, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
