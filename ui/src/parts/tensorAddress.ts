/** The parts of the address of a tensor: `RANK/GRAPH/NODE:SLOT`, for an input `…:input.SLOT`. */
export interface TensorAddress {
  rank: number
  graph: string
  node: string
  io: 'output' | 'input'
  slot: number
}

const ADDRESS = /^(\d{1,9})\/([^/]*)\/(.+):(input\.)?(\d{1,9})(?:@\d{1,18})?$/s

/** Parse an address, with or without a step; return null if the text is not an address. */
export function parseAddress(text: string): TensorAddress | null {
  const match = ADDRESS.exec(text)
  if (!match) return null
  const [, rank, graph = '', node = '', input, slot] = match
  return { rank: Number(rank), graph, node, io: input ? 'input' : 'output', slot: Number(slot) }
}
