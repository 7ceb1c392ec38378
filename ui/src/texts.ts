import { texts } from './i18n'

export const frameTexts = texts(
  'frame',
  {
    nodes: 'Nodes',
    hits: 'Hits',
    sources: 'Source',
    overview: 'Overview',
    curves: 'Curves',
    graph: 'Graph',
    tensors: 'Tensors',
    compare: 'Compare',
    close: 'Close {{tensor}}',
  },
  {
    nodes: '节点',
    hits: '命中',
    sources: '源码',
    overview: '概览',
    curves: '曲线',
    graph: '计算图',
    tensors: '张量',
    compare: '对比',
    close: '关闭 {{tensor}}',
  },
)
