// Short messages that come and go: what became of what someone did.

interface Toast {
  id: number;
  text: string;
  tone: 'good' | 'bad';
}

const STAY_MS = { good: 5000, bad: 12_000 };
const MOST = 4;

class ToastList {
  all = $state<Toast[]>([]);
  #next = 0;

  say(text: string, tone: Toast['tone'] = 'good'): void {
    const id = this.#next++;
    this.all = [...this.all.slice(1 - MOST), { id, text, tone }];
    setTimeout(() => this.drop(id), STAY_MS[tone]);
  }

  drop(id: number): void {
    this.all = this.all.filter((toast) => toast.id !== id);
  }
}

export const toasts = new ToastList();
