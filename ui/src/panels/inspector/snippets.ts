import type { TensorRecord } from '~/api/types'

const quoted = (text: string) => JSON.stringify(text)

/** Python that reads a tensor from the debug server, as it is shown. */
export function serverSnippet(record: TensorRecord, run: string, server: string): string {
  return `import tensight

session = tensight.connect(${quoted(server)}).session(${quoted(run)})
tensor = session.tensor(${quoted(record.address)})
print(tensor.statistics())
values = tensor.numpy()
`
}

/** Python that reads a tensor from a dump, without a server. */
export function dumpSnippet(record: TensorRecord, dump: string): string {
  const side = record.io === 'input' ? ', io="input"' : ''
  return `from tensight.debugger import DumpAnalyzer
from tensight.dumps import read_tensor

analyzer = DumpAnalyzer(${quoted(dump)})  # where the dump is
name = ${quoted(record.node)}
nodes = analyzer.select_nodes(name, ranks=${record.rank})
[node] = [each for each in nodes if each.name == name and each.graph_name == ${quoted(record.graph)}]
tensor = analyzer.dump.find(${record.rank}, node.root_graph_id, ${record.iteration}, name, ${record.slot}${side})
values = read_tensor(tensor)
`
}
