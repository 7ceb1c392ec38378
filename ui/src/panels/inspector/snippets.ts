import type { TensorRecord } from '~/api/types'

const quoted = (text: string) => JSON.stringify(text)

/** Return Python code that reads what there is of the tensor shown from the debug server. */
export function serverSnippet(record: TensorRecord, run: string, server: string): string {
  return `import tensight

session = tensight.connect(${quoted(server)}).session(${quoted(run)})
tensor = session.tensor(${quoted(record.address)})
${READS[record.status]}`
}

const EACH_STEP = `for row in tensor.history():
    print(row.step, row.statistics)
`

/** What works of a tensor, by what is kept of it. */
const READS: Record<TensorRecord['status'], string> = {
  available: 'print(tensor.statistics())\nvalues = tensor.numpy()\n',
  at_source: 'print(tensor.statistics())  # while the training is paused\nvalues = tensor.numpy()\n',
  statistics_only: `print(tensor.record.statistics)  # its values are not kept\n${EACH_STEP}`,
  not_kept: `# Of this step nothing is kept.\n${EACH_STEP}`,
}

/** Return Python code that reads a tensor from a dump, without a server; its values must be on disk. */
export function dumpSnippet(record: TensorRecord, dump: string): string {
  const base = dump.startsWith('runs/') ? '--workspace' : '--summary-base-dir'
  return `from tensight.dumps import open_dump, read_tensor

dump = open_dump(${quoted(dump)})  # below the folder of the server's ${base}
tensor = dump.tensor(${quoted(record.address)})
values = read_tensor(tensor)
`
}
