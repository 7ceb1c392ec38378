import { texts } from '~/i18n'

export const stateTexts = texts(
  'states',
  {
    word: {
      connecting: 'Opening',
      paused: 'Paused',
      sending: 'Sending',
      running: 'Running',
      mismatch: 'Versions differ',
      finished: 'Finished',
      terminated: 'Terminated',
      lost: 'Lost',
      failed: 'Failed',
    },
    about: {
      connecting: 'The run is being opened: waiting for its graph.',
      paused: 'The run is stopped and waits for you.',
      sending: 'The command is being sent to the training.',
      running: 'The run continues until a watchpoint hits or you pause it.',
      mismatch: 'The training and the debug server do not understand each other.',
      finished: 'The training ran to its end; recorded data can still be inspected.',
      terminated: 'The run was ended from here.',
      lost: 'The training disconnected without notice.',
      failed: 'The run could not be opened.',
    },
  },
  {
    word: {
      connecting: '正在打开',
      paused: '已暂停',
      sending: '正在发送',
      running: '运行中',
      mismatch: '版本不匹配',
      finished: '已结束',
      terminated: '已终止',
      lost: '已失联',
      failed: '失败',
    },
    about: {
      connecting: '正在打开：等待计算图数据。',
      paused: '训练已停下，等待您的操作。',
      sending: '命令正在发送给训练进程。',
      running: '训练继续运行，直到命中监测点或您将其暂停。',
      mismatch: '训练进程与调试服务的版本互不兼容。',
      finished: '训练已运行完毕，已记录的数据仍可查看。',
      terminated: '训练已在此处被终止。',
      lost: '训练进程未作通知便断开了连接。',
      failed: '无法打开。',
    },
  },
)
