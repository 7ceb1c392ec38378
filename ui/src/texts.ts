import { texts } from './i18n'
import { tabNames } from './panels/tabs'

export const frameTexts = texts(
  'frame',
  {
    nodes: 'Nodes',
    hits: 'Hits',
    sources: 'Source',
    tabs: tabNames('en'),
    close: 'Close {{tensor}}',
  },
  {
    nodes: '节点',
    hits: '命中',
    sources: '源码',
    tabs: tabNames('zh'),
    close: '关闭 {{tensor}}',
  },
)
