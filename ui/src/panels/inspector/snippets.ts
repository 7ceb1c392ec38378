import type { TensorRecord } from '~/api/types'

const quoted = (text: string) => JSON.stringify(text)

/** Return Python code that reads the tensor shown from the debug server. */
export function serverSnippet(record: TensorRecord, run: string, server: string): string {
  return `import tensight

session = tensight.connect(${quoted(server)}).session(${quoted(run)})
tensor = session.tensor(${quoted(record.address)})
print(tensor.statistics())
values = tensor.numpy()
`
}

/** Return Python code that reads a tensor from a dump, without a server. */
export function dumpSnippet(record: TensorRecord, dump: string): string {
  return `from tensight.dumps import open_dump, read_tensor

dump = open_dump(${quoted(dump)})  # path of the dump
tensor = dump.tensor(${quoted(record.address)})
values = read_tensor(tensor)
`
}
