# A prior that does not fit its form.
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
    form  = "pollux"
    theta = [0, 0, 0, 0, 0.5]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
